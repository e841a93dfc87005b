"""One controller for all nodes (``RECOVERY_MODE=fleet``): the same core, fed by a watch of the Nodes."""
