"""Models that people ask and teach over HTTP, each private between its users."""
