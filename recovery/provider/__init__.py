"""What a provider is. ``protocol``, ``declaration`` and ``monitor`` are what providers import.

``registry`` chooses the provider of a node, ``installed`` reads all declarations. Nothing here knows a cloud.
"""
