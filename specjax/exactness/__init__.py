"""What proves that texts follow the target's law: enumeration, audits, nasty inputs."""
