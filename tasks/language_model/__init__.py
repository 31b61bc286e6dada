"""Language models: texts of any form, vocabularies, models, their training and evaluation."""
