"""Are the people who are scored like those that the model learned from?"""
