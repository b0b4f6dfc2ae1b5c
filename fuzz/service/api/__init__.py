"""The endpoints, a file a resource."""
