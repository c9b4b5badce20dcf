"""HubKV: submodular marginal discounting of importance scores."""
