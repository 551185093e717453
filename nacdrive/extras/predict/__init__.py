"""What a trained network says of a person's own data: digits in pictures, activities in recordings."""
