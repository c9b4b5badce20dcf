"""HubKV without loops over tokens, heads or places."""
