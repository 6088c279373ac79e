"""The coefficients of chosen support vectors, solved anew; and the vectors moved."""
