"""The Kubernetes API: ``cluster`` has the verbs, ``transport`` one request, ``views`` the objects read.

``rights`` lists what RBAC must grant; ``provider_objects`` gives providers the objects that they name. Only
``transport`` imports the Kubernetes client.
"""
