"""The conformance suite: does an implementation compute what the papers say?"""
