"""Training of Podium's conductors: questions with exact answers, supervised training of nano, export to GGUF, evaluation."""
