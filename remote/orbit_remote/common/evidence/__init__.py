"""Evidence on which of two versions is slower that holds whenever one stops to look"""
