#include "commands.h"
#include "open_model.h"
#include "prompts.h"
#include "../base/json.h"
#include "../inspect/inspect_page.h"
#include "../train/open_plan.h"

// Returns the tokens of --prompt, which token_list_free() frees. Ends the program if it is not one text of at least two
// tokens that the model, and a page about it, have room for.
static TokenList read_prompt(const Config* c, const Tokenizer* tokenizer, const GPT2Config* m) {
    Error err;
    Prompts prompts;
    if (!prompts_read(&prompts, c, &err)) { fatal("%s", err.text); }
    if (prompts.count != 1) { usage_error("--prompt %s has %zu texts: give one", c->prompt, prompts.count); }
    TokenList tokens = token_list();
    tokenizer_encode(tokenizer, prompts.prompt[0].text, prompts.prompt[0].bytes, &tokens);
    prompts_free(&prompts);
    const size_t room = (size_t)inspect_most_tokens(m);
    if (tokens.count == 0) { usage_error("--prompt is empty: give the text that the model should read"); }
    if (tokens.count == 1) { usage_error("--prompt has one token, and nothing to predict it from: give at least two"); }
    if (tokens.count > (size_t)m->max_seq_len) {
        fatal("--prompt has %zu tokens, the model only %d positions: shorten it", tokens.count, m->max_seq_len);
    }
    if (tokens.count > room) {
        fatal("--prompt has %zu tokens, but a page of %d layers of %d heads has room for %zu: shorten it",
              tokens.count, m->num_layers, m->num_heads, room);
    }
    return tokens;
}

// Computes the facts and writes the page.
static void inspect_prompt(const Config* c, Plan* plan, const Backend* b, const char* path, const char* name) {
    Error err;
    Facts facts;
    GPT2 model;
    Comm alone = comm_alone();
    open_device(b, &plan->device, &alone);
    Tokenizer* tokenizer = open_text_tokenizer(c, plan, plan->weights, "inspect");
    TokenList tokens = read_prompt(c, tokenizer, &plan->shape);
    plan->keep = FORWARD_ONLY;
    plan->B = 1;
    plan->samples = 0;
    plan->T = (int)tokens.count;
    open_model(&model, plan, &alone);
    notice("reading %d tokens, once without each of %d heads, attentions and MLPs", plan->T,
           plan->shape.num_layers * (plan->shape.num_heads + 2));
    if (!facts_compute(&facts, &model, tokens.ids, plan->T, &err)) { fatal("%s: %s", plan->weights, err.text); }
    if (!inspect_write(path, name, &facts, tokenizer, &err)) { fatal("%s", err.text); }
    facts_free(&facts);
    gpt2_free(&model);
    token_list_free(&tokens);
    close_tokenizer(tokenizer);
}

int inspect_command(Config* c, const Backend* b) {
    Error err;
    Plan plan;
    if (!strcmp(c->init, "random")) { usage_error("inspect needs a model: give --init FOLDER"); }
    char* path = config_source(c, "out") > FROM_DEFAULT ? page_path(c, "inspect.html") : format("inspect.html");
    if (!inspect_may_replace(path, &err)) { usage_error("%s", err.text); }
    char* folder = weights_folder(c);
    take_data_options(c, folder);
    c->document_mask = 0; // a text is one document
    if (!plan_make(&plan, b, dtype_fp32, c, folder, &err)) { usage_error("%s", err.text); }
    const double start = seconds_now();
    inspect_prompt(c, &plan, b, path, folder);
    notice("inspected in %.1f s", seconds_now() - start);
    print_result("%s\n", path);
    free(folder);
    free(path);
    return EXIT_DONE;
}
