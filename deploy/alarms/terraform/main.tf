# The CloudFormation template as a Terraform module, so that there is one set of alarms and not two.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = { source = "hashicorp/aws", version = ">= 5.0" }
  }
}

variable "cluster_name" {
  description = "The agents' CLUSTER_NAME."
  type        = string
}

variable "namespace" {
  description = "The agents' CLOUDWATCH_NAMESPACE. deploy/eks-neuron sets NeuronHealthCheck."
  type        = string
  default     = "NodeRecovery"
}

variable "topic_arn" {
  description = "The SNS topic for what needs a person."
  type        = string
}

variable "info_topic_arn" {
  description = "The SNS topic for what is good to know. Empty: nobody is notified."
  type        = string
  default     = ""
}

variable "heartbeat_seconds" {
  description = "The agents' HEARTBEAT_INTERVAL in seconds, a multiple of 60; 0 makes no alarm on silence."
  type        = number
  default     = 0
}

variable "minimum_agents" {
  description = "Fewer agents than this that watch their node are too few."
  type        = number
  default     = 1
}

resource "aws_cloudformation_stack" "alarms" {
  name          = "node-recovery-alarms-${replace(var.cluster_name, "/[_.]/", "-")}"
  template_body = file("${path.module}/../cloudformation/alarms.yaml")

  parameters = {
    ClusterName      = var.cluster_name
    Namespace        = var.namespace
    TopicArn         = var.topic_arn
    InfoTopicArn     = var.info_topic_arn
    HeartbeatSeconds = var.heartbeat_seconds
    MinimumAgents    = var.minimum_agents
  }
}

output "stack_id" {
  description = "The stack that holds the alarms."
  value       = aws_cloudformation_stack.alarms.id
}
