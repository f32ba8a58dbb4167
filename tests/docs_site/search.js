// The search of the site, by the script that its pages run in a worker: prints the pages that each query finds, best first.
//   node search.js SITE QUERY...
const fs = require("fs");
const path = require("path");

const [site, ...queries] = process.argv.slice(2);
const workers = path.join(site, "assets/javascripts/workers");
const [script] = fs.readdirSync(workers).filter((name) => /^search\..*\.min\.js$/.test(name));
const asked = [];
let answered = () => {};

global.self = global;
global.addEventListener = (_, listener) => asked.push(listener);
global.postMessage = (message) => answered(message);
require(path.join(workers, script));

function ask(type, data) {
  return new Promise((resolve) => {
    answered = resolve;
    asked[0]({ data: { type, data } });
  });
}

async function main() {
  const { config, docs } = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json")));
  await ask(0, { config, docs, options: { suggest: true } });
  const found = {};
  for (const query of queries) {
    const { data } = await ask(2, query);
    found[query] = data.items.map((items) => items.map(({ location }) => location));
  }
  console.log(JSON.stringify(found));
}

main();
