// SPDX-License-Identifier: Apache-2.0
// One session with the official client. Standard input: {"transport": {"command", "args"} or {"url",
// "token"}, "calls": [[tool, arguments], ...], "prompts": [[name, arguments], ...]}. Standard output:
// what the server said, as one JSON object. The client itself checks structured content against
// the output schemas that the server lists.

import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const want = JSON.parse(readFileSync(0, "utf8"));
const { transport } = want;

function connect() {
  if (transport.command) {
    return new StdioClientTransport({ command: transport.command, args: transport.args });
  }
  const headers = transport.token ? { Authorization: `Bearer ${transport.token}` } : {};
  return new StreamableHTTPClientTransport(new URL(transport.url), { requestInit: { headers } });
}

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    return { failed: { code: error.code, message: error.message } };
  }
}

const client = new Client({ name: "lanterne-test", version: "1" });
await client.connect(connect());
const said = { server: client.getServerVersion(), capabilities: client.getServerCapabilities(),
               instructions: client.getInstructions() };
said.tools = (await client.listTools()).tools;
said.prompts = (await client.listPrompts()).prompts;
await client.ping();
said.calls = [];
for (const [name, args] of want.calls ?? []) {
  said.calls.push(await attempt(() => client.callTool({ name, arguments: args })));
}
said.got = [];
for (const [name, args] of want.prompts ?? []) {
  said.got.push(await attempt(() => client.getPrompt({ name, arguments: args })));
}
await client.close();
process.stdout.write(JSON.stringify(said));
