"""Work × Device → seconds: what each op takes, from a calibration or from class priors."""
