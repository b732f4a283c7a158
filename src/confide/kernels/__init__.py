"""How loops are compiled, and the few machine instructions they need."""
