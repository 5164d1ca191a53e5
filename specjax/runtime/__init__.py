"""The process around the models: devices, hosts, JAX's flags, caches, and the
console."""
