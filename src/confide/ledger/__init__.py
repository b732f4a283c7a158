"""What is durable."""

from confide.ledger.book import Book, Entry
from confide.ledger.ledger import Ledger, Spent

__all__ = ["Book", "Entry", "Ledger", "Spent"]
