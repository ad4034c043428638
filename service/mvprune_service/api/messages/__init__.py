"""Requests and answers: names, filters, pages, and rows as messages."""
