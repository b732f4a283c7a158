"""Models that are taught randomized labels: rows are not protected, so they may keep them."""
