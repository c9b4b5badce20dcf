"""What a run says: a card a function, a heading a cause, the least input that fails."""
