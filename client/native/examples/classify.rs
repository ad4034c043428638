// The labels of a text: classify FOLDER TEXT
//
// rustc classify.rs -C link-arg=libmvprune.so.1
use std::ffi::{c_char, c_float, CStr, CString};
use std::ptr::{null, null_mut};

#[repr(C)]
struct Texts {
    size: usize,
    texts: *const *const c_char,
    pairs: *const *const c_char,
    count: i64,
    prompt_name: *const c_char,
}

// Handles are addresses that only the library reads.
type Model = *mut u8;
type Output = *mut u8;
type Failure = *mut u8;

extern "C" {
    fn mvprune_open(path: *const c_char, options: *const u8, model: *mut Model, error: *mut Failure) -> i32;
    fn mvprune_close(model: Model);
    fn mvprune_label(model: Model, label: i64) -> *const c_char;
    fn mvprune_run_texts(
        model: Model,
        texts: *const Texts,
        options: *const u8,
        output: *mut Output,
        error: *mut Failure,
    ) -> i32;
    fn mvprune_output_values(output: Output, rows: *mut i64, columns: *mut i64) -> *const c_float;
    fn mvprune_output_free(output: Output);
    fn mvprune_error_text(error: Failure) -> *const c_char;
    fn mvprune_error_free(error: Failure);
}

fn owned(text: *const c_char) -> String {
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn check(status: i32, error: Failure) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    let text = owned(unsafe { mvprune_error_text(error) });
    unsafe { mvprune_error_free(error) };
    Err(text)
}

struct Classifier(Model);

impl Classifier {
    fn open(path: &str) -> Result<Self, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let (mut model, mut error) = (null_mut(), null_mut());
        check(unsafe { mvprune_open(path.as_ptr(), null(), &mut model, &mut error) }, error)?;
        Ok(Classifier(model))
    }

    fn logits(&self, text: &str) -> Result<Vec<(String, f32)>, String> {
        let text = CString::new(text).map_err(|error| error.to_string())?;
        let listed = [text.as_ptr()];
        let size = std::mem::size_of::<Texts>();
        let texts = Texts { size, texts: listed.as_ptr(), pairs: null(), count: 1, prompt_name: null() };
        let (mut output, mut error) = (null_mut(), null_mut());
        check(unsafe { mvprune_run_texts(self.0, &texts, null(), &mut output, &mut error) }, error)?;
        let mut columns = 0;
        let values = unsafe { mvprune_output_values(output, null_mut(), &mut columns) };
        let found = (0..columns)
            .map(|i| unsafe { (owned(mvprune_label(self.0, i)), *values.add(i as usize)) })
            .collect();
        unsafe { mvprune_output_free(output) };
        Ok(found)
    }
}

impl Drop for Classifier {
    fn drop(&mut self) {
        unsafe { mvprune_close(self.0) }
    }
}

fn main() -> Result<(), String> {
    let given: Vec<String> = std::env::args().collect();
    for (label, logit) in Classifier::open(&given[1])?.logits(&given[2])? {
        println!("{label} {logit:.6}");
    }
    Ok(())
}
