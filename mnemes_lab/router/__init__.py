"""The router: which shards to ask, and how their answers become one."""
