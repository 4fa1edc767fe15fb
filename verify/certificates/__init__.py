"""Certificates for strangers: files that hold a claim, and the one program that proves them again."""
