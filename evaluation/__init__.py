"""Test games, statistics, published scores, reports, films and pictures."""
