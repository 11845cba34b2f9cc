"""Install drlnb on a cluster and speak with it."""
