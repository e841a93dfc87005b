"""The Kubernetes API: ``cluster`` has the verbs, ``transport`` one request, ``views`` the objects read.

``rights`` lists what RBAC must grant; ``provider_objects`` gives providers the objects that they name. The
layers above import from here. Imports provider, model, units, errors, clock; ``transport`` alone the client.
"""
