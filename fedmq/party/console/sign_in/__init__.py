"""Who is at the browser, and what may this person do?"""
