"""What is durable."""
