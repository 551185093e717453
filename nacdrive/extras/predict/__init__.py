"""What a trained network says of a person's own data: wear of bearings, digits in pictures, activities."""
