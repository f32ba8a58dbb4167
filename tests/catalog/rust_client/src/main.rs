//! A program around `unity-catalog-delta-rest-client`, the client of Unity Catalog that comes with Delta Kernel.
//!
//! Reads one call a line, `{"call": ..., ...}`, on the table `main.sales.<table>`, and writes what came of it as a line
//! of JSON: `{"ok": ...}` or `{"error": "..."}`.

use std::io::{self, BufRead, Write};

use serde_json::{json, Value};
use unity_catalog_delta_rest_client::{
    ClientConfig, CommitReport, CreateStagingTableRequest, Operation, TableIdentifier, UCDeltaTableClient,
    UCUpdateTableRestClient, UpdateTableClient, UpdateTableRequest,
};

type Outcome = Result<Value, Box<dyn std::error::Error>>;

struct Clients {
    tables: UCDeltaTableClient,
    commits: UCUpdateTableRestClient,
}

async fn call(clients: &Clients, asked: &Value) -> Outcome {
    let table = asked["table"].as_str().unwrap_or_default();
    let tables = &clients.tables;
    Ok(match asked["call"].as_str().unwrap_or_default() {
        "config" => serde_json::to_value(tables.get_config("main", &["1.0"]).await?)?,
        "load" => serde_json::to_value(tables.load_table("main", "sales", table).await?)?,
        "credentials" => {
            let found = tables.get_table_credentials("main", "sales", table, Operation::ReadWrite).await?;
            json!(found.storage_credentials.len())
        }
        "stage" => {
            let request = CreateStagingTableRequest { name: table.to_string() };
            serde_json::to_value(tables.create_staging_table("main", "sales", request).await?)?
        }
        "metrics" => {
            let report: CommitReport = serde_json::from_value(asked["report"].clone())?;
            tables.report_metrics("main", "sales", table, asked["id"].as_str().unwrap_or_default(), report).await?;
            Value::Null
        }
        "update" => {
            let requirements = serde_json::from_value(asked["requirements"].clone())?;
            let updates = serde_json::from_value(asked["updates"].clone())?;
            let request = UpdateTableRequest::new(requirements, updates)?;
            let target = TableIdentifier::new("main", "sales", table);
            clients.commits.update_table(&target, request).await?;
            Value::Null
        }
        other => return Err(format!("no call {other}").into()),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let config = ClientConfig::build(&arguments[1], &arguments[2]).build()?;
    let clients = Clients {
        tables: UCDeltaTableClient::new(config.clone())?,
        commits: UCUpdateTableRestClient::new(config)?,
    };
    for line in io::stdin().lock().lines() {
        let answer = match call(&clients, &serde_json::from_str(&line?)?).await {
            Ok(found) => json!({"ok": found}),
            Err(error) => json!({"error": error.to_string()}),
        };
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}
