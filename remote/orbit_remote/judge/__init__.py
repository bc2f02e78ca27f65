"""The judge: a candidate and its reference in locked processes of their own, measured and compared from outside of both"""
