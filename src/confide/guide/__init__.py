"""The guide: a linear model over a public feature map, learned from noisy sums; private, so everyone may see it."""
