"""Resource types: one module or folder for each type or group of types, and the parts that they share."""
