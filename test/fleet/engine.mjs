// SPDX-License-Identifier: Apache-2.0
//
// The engine of a current ClickHouse (chDB) with as much of its HTTP interface as the test of
// configs/fleet/clickhouse/otel-logs.sql needs: a statement is posted, its answer comes back.
//
//   node engine.mjs MODULE DIRECTORY
import http from 'node:http';
import { createRequire } from 'node:module';

const [module, directory] = process.argv.slice(2);
const { Session } = createRequire(import.meta.url)(module);
const session = new Session(directory);

const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    try {
      response.end(session.query(Buffer.concat(parts).toString('utf8'), 'TabSeparated'));
    } catch (error) {
      response.statusCode = 500;
      response.end(String(error));
    }
  });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit(0)).resume(); // the test is over
