"""Changes of the schema, of properties, features, constraints and descriptions."""
