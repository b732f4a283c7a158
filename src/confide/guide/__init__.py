"""The guide: a linear model over a public feature map, learned from noisy sums. It is private, so everyone may see it."""
