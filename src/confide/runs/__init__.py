"""A run: settings, the runner, its report."""
