"""What a server does under load: simulated, and measured."""
