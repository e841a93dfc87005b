variable "region" {
  description = "The region of the cluster and its Auto Scaling groups."
  type        = string
}

variable "cluster_name" {
  description = "The cluster. Only instances tagged kubernetes.io/cluster/NAME=owned may be rebooted."
  type        = string
}

variable "group_name" {
  description = "The Auto Scaling group whose instances may be marked unhealthy; * and ? are wildcards. Empty: every group that is tagged kubernetes.io/cluster/NAME=owned."
  type        = string
  default     = ""
}

variable "metric_namespace" {
  description = "The CloudWatch namespace, as in CLOUDWATCH_NAMESPACE."
  type        = string
  default     = "NodeRecovery"
}

variable "namespace" {
  description = "The agent's Kubernetes namespace."
  type        = string
  default     = "node-recovery"
}

variable "service_account" {
  description = "The agent's Kubernetes service account."
  type        = string
  default     = "node-recovery"
}

variable "oidc_provider" {
  description = "For IAM roles for service accounts (IRSA): the cluster's OIDC issuer without https://. Empty: EKS Pod Identity."
  type        = string
  default     = ""

  validation {
    condition     = !strcontains(var.oidc_provider, ":")
    error_message = "The issuer is written without https://."
  }
}
