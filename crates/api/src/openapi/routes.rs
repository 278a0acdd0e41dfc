//! The table of routes. A test of the server compares it with its router.

/// A route of the HTTP API.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method in capitals.
    pub method: &'static str,
    /// The path; `{id}` stands for a segment.
    pub path: &'static str,
    pub(super) summary: &'static str,
    pub(super) takes: Takes,
    /// The schema of the JSON that it returns; none for another body.
    pub(super) json: Option<&'static str>,
    /// The other media type that it returns, if any.
    pub(super) other: Option<Other>,
}

/// The parts of a request besides its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// A page: `limit`, `after` and, for items, `order`.
    Page,
    /// An object with this schema.
    Body(&'static str),
    /// The same, or no body.
    MaybeBody(&'static str),
}

/// A body that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    Events,
    Text,
    Empty,
}

impl Route {
    const fn new(method: &'static str, path: &'static str, summary: &'static str) -> Self {
        Self { method, path, summary, takes: Takes::Nothing, json: None, other: None }
    }

    /// It has a body with this schema.
    const fn takes(self, schema: &'static str) -> Self {
        Self { takes: Takes::Body(schema), ..self }
    }

    const fn may_take(self, schema: &'static str) -> Self {
        Self { takes: Takes::MaybeBody(schema), ..self }
    }

    const fn page(self) -> Self {
        Self { takes: Takes::Page, ..self }
    }

    /// It returns JSON with this schema.
    const fn gives(self, schema: &'static str) -> Self {
        Self { json: Some(schema), ..self }
    }

    const fn events(self) -> Self {
        Self { other: Some(Other::Events), ..self }
    }

    const fn text(self) -> Self {
        Self { other: Some(Other::Text), ..self }
    }

    const fn empty(self) -> Self {
        Self { other: Some(Other::Empty), ..self }
    }
}

const fn get(path: &'static str, summary: &'static str) -> Route {
    Route::new("GET", path, summary)
}

const fn post(path: &'static str, summary: &'static str) -> Route {
    Route::new("POST", path, summary)
}

const fn delete(path: &'static str, summary: &'static str) -> Route {
    Route::new("DELETE", path, summary)
}

/// Every route, but for the WebSocket of the Responses API, which `OpenAPI` cannot describe.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    post("/v1/chat/completions", "Answers with a completion").takes("ChatCompletionRequest").gives("ChatCompletion").events(),
    post("/v1/responses", "Makes a response").takes("ResponseRequest").gives("Response").events(),
    post("/v1/responses/compact", "Summarizes a conversation").takes("CompactionRequest").gives("Compaction"),
    post("/v1/responses/input_tokens", "Estimates the tokens of an input").takes("InputTokensRequest").gives("InputTokens"),
    get("/v1/responses/{id}", "Returns a stored response").gives("Response").events(),
    delete("/v1/responses/{id}", "Removes a response").gives("Removed"),
    post("/v1/responses/{id}/cancel", "Cancels a response").gives("Response"),
    get("/v1/responses/{id}/input_items", "Lists the items of an input").page().gives("ItemList"),
    post("/v1/conversations", "Makes a conversation").may_take("ConversationRequest").gives("Conversation"),
    get("/v1/conversations/{id}", "Returns a conversation").gives("Conversation"),
    post("/v1/conversations/{id}", "Replaces its metadata").takes("ConversationChangeRequest").gives("Conversation"),
    delete("/v1/conversations/{id}", "Removes a conversation").gives("Removed"),
    get("/v1/conversations/{id}/items", "Lists its items").page().gives("ItemList"),
    post("/v1/conversations/{id}/items", "Adds items").takes("ConversationItemsRequest").gives("ItemList"),
    get("/v1/conversations/{id}/items/{item}", "Returns an item").gives("Item"),
    delete("/v1/conversations/{id}/items/{item}", "Removes an item").gives("Conversation"),
    post("/v1/messages", "Answers with a message").takes("MessageRequest").gives("Message").events(),
    post("/v1/messages/count_tokens", "Estimates input tokens").takes("TokenCountRequest").gives("TokenCount"),
    post("/v1/estimates", "Estimates the cost of a completion").takes("ChatCompletionRequest").gives("Estimate"),
    get("/v1/budgets", "Lists the caller's budgets").gives("BudgetList"),
    get("/v1/runs", "Lists the caller's runs").page().gives("RunList"),
    get("/v1/runs/{id}", "Returns a run").gives("Run"),
    post("/v1/runs/{id}/cancel", "Cancels a run").gives("Run"),
    get("/v1/runs/{id}/events", "Streams the events of a run").events(),
    post("/v1/runs/{id}/rating", "Rates a run").takes("RatingRequest").gives("Rating"),
    get("/v1/models", "Lists the models").gives("ModelList"),
    get("/v1/models/{id}", "Returns a model").gives("Model"),
    get("/healthz", "Whether the process is alive").text(),
    get("/readyz", "Whether the process takes requests").text(),
    get("/api/hello", "Whether the API is reachable").empty(),
    get("/openapi.json", "Returns this document").gives("Document"),
];
