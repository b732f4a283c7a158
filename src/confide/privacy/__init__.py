"""What is drawn, and what it costs."""
