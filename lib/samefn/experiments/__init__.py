"""The experiments: do trained networks have the symmetries that the chapters prove?

training            one seeded loop
data                real images
protocol            what the mirror experiments share
mirror_mlp          chapter equivariance/mirror, recorded runs in results/mirror.json
mirror_attention    chapter equivariance/heads, recorded runs in results/heads.json
records             recorded runs, read and written
"""
