"""Reports on compiled programs: `explain`, profiles, limits of the machine."""
