"""Speed, growth and endurance of the chains, beside what one would write without this package."""
