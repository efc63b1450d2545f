# A mixed model by lme4, from a CSV file of rows to a CSV file of estimates: see pooled_mixed_models.py, which starts it.
#
#   Rscript studies/benchmarks/pooled_mixed_models.R "lme4, uncorrelated" rows.csv estimates.csv
#
# Settings are lmer's own. A hospital's coefficient is the sum of the average and the random effect; its variance that of the
# random effect given the data (ranef(condVar = TRUE)) and that of the average effect, as if the two were independent.

suppressPackageStartupMessages(library(lme4))

given <- commandArgs(trailingOnly = TRUE)
uncorrelated <- grepl("uncorrelated", given[1])
rows <- read.csv(given[2])
rows$hospital <- factor(rows$hospital, levels = unique(rows$hospital))
slopes <- paste(setdiff(names(rows), c("hospital", "y")), collapse = " + ")
bars <- if (uncorrelated) "||" else "|"
fit <- suppressMessages(suppressWarnings(
  lmer(as.formula(sprintf("y ~ 1 + %s + (1 + %s %s hospital)", slopes, slopes, bars)), data = rows, REML = TRUE)
))

mu <- fixef(fit)
mu_variance <- diag(as.matrix(vcov(fit)))
effects <- ranef(fit, condVar = TRUE)$hospital
conditional <- attr(effects, "postVar")
m <- nrow(effects)
d <- length(mu)
if (is.list(conditional)) { # of uncorrelated effects: one array for every term
  variance <- sapply(conditional, function(each) each[1, 1, ])
} else {
  variance <- t(apply(conditional, 3, diag))
}
beta <- sweep(as.matrix(effects), 2, mu, "+")
half <- qnorm(0.95) * sqrt(sweep(variance, 2, mu_variance, "+"))
about <- qnorm(0.95) * sqrt(mu_variance)
write.csv(data.frame(
  hospital = c(rep(rownames(effects), each = d), rep("", d)),
  coefficient = rep(seq_len(d) - 1, m + 1),
  estimate = c(t(beta), mu),
  lower = c(t(beta - half), mu - about),
  upper = c(t(beta + half), mu + about)
), given[3], row.names = FALSE)

messages <- fit@optinfo$conv$lme4$messages
code <- fit@optinfo$conv$opt
cat(sprintf(
  '{"converged": %s, "singular": %s, "messages": "%s", "versions": {"R": "%s", "lme4": "%s"}}\n',
  if (code == 0 && !any(grepl("failed to converge", messages))) "true" else "false",
  if (isSingular(fit)) "true" else "false",
  gsub('"', "'", gsub("\n", " ", paste(messages, collapse = "; "))),
  paste(R.version$major, R.version$minor, sep = "."), packageVersion("lme4")
))
