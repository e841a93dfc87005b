// Weighs requests as IAM does. In: a JSON list of simulations. Out: for each what came of it, as a JSON list.
// A condition key that the engine does not know for the action would be left out of the weighing without a
// word: that is an answer of its own here.

import { text } from 'node:stream/consumers'
import { runSimulation } from '@cloud-copilot/iam-simulate'

const none = { identityPolicies: [], serviceControlPolicies: [], resourceControlPolicies: [] }

async function weighed(simulation) {
  const result = await runSimulation({ ...none, ...simulation }, {})
  if (result.resultType === 'error') return `Error: ${JSON.stringify(result.errors)}`
  const ignored = (result.results ?? [result.result]).flatMap((one) => one.ignoredContextKeys ?? [])
  return ignored.length ? `Ignored: ${ignored.join(', ')}` : result.overallResult
}

const simulations = JSON.parse(await text(process.stdin))
process.stdout.write(JSON.stringify(await Promise.all(simulations.map(weighed))))
