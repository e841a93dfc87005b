# The role of node-recovery's agent on one EKS cluster. The documents are the JSON files of the folder above.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.29"
    }
  }
}

data "aws_caller_identity" "this" {}
data "aws_partition" "this" {}

locals {
  documents    = "${path.module}/.."
  pod_identity = var.oidc_provider == ""
  values = {
    PARTITION        = data.aws_partition.this.partition
    REGION           = var.region
    ACCOUNT          = data.aws_caller_identity.this.account_id
    CLUSTER          = var.cluster_name
    GROUP            = var.group_name
    METRIC_NAMESPACE = var.metric_namespace
    NAMESPACE        = var.namespace
    SERVICE_ACCOUNT  = var.service_account
    OIDC_PROVIDER    = var.oidc_provider
  }
}

resource "aws_iam_role" "this" {
  name_prefix        = "node-recovery-"
  description        = "node-recovery's agent on ${var.cluster_name}"
  assume_role_policy = templatefile("${local.documents}/${local.pod_identity ? "trust-pod-identity" : "trust-irsa"}.json", local.values)
}

resource "aws_iam_role_policy" "this" {
  name   = "node-recovery"
  role   = aws_iam_role.this.id
  policy = templatefile("${local.documents}/${var.group_name == "" ? "policy-by-tag" : "policy"}.json", local.values)
}

resource "aws_eks_pod_identity_association" "this" {
  count           = local.pod_identity ? 1 : 0
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.this.arn
}

resource "aws_eks_pod_identity_association" "concluder" {
  count           = local.pod_identity ? 1 : 0
  cluster_name    = var.cluster_name
  namespace       = "node-recovery-concluder"
  service_account = "node-recovery-concluder"
  role_arn        = aws_iam_role.this.arn
}

output "role_arn" {
  description = "For IRSA, both service accounts' annotation eks.amazonaws.com/role-arn."
  value       = aws_iam_role.this.arn
}
