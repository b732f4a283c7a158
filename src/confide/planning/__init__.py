"""From a promise to numbers, and back."""
