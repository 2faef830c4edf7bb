"""The tuning loop: propose, compile ahead, measure, tell, rematch, record."""
